"""Who suffers beside whom: models of slowdown, features, scores. Pure functions; `training` fits them."""
