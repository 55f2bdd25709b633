"""Stands for the absence of torch in processes that tests start; ``without_torch`` of the test configuration tells why."""

raise ImportError("there is no torch, as where textpriv is installed by itself")
