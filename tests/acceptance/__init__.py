"""NPU Vigil as a stranger would accept it: the installed command, another driver, real stores."""
