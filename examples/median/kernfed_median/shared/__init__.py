"""What every part of the federation knows of the method."""
