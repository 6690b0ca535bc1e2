"""The commands of `kernfed-coordinator`, a module each, which is loaded when it is run."""
