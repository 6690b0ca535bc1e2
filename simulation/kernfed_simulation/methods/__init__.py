"""What a simulation measures beside a method, in one room a family."""
