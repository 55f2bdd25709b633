"""New labelled texts under differential privacy for whole records: noisy sums of the private texts tilt a public model."""
