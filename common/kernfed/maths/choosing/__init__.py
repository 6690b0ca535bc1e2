"""Which ridge and lengthscale predict rows that are kept apart best."""
