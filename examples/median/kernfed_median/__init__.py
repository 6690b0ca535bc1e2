"""The method `median`: federated averaging with the median in place of the mean."""
