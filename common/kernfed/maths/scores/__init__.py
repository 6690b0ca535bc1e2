"""What scores on test rows are worth: estimates with standard errors, in which rows of a group count together."""
