"""The part of this family's maths that needs torch."""
