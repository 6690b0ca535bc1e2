"""The commands of `kernfed-client`, a module each, which is loaded when it is run."""
