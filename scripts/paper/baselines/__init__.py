"""The methods that DRIFT is compared with: a module for each network or family, a YAML for each in its configs."""
