"""Documents that we own in a store: their observed state, and foreign writes of them."""
