#!/bin/bash
# Installs what the tests need beyond Python packages; ends with 2 and a command where it may not.
set -euo pipefail
