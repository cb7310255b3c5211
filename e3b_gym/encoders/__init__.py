"""Networks that embed observations, and the dynamics heads that train them."""
