"""Model adapters and other outside technology behind the ports of `schemas.ports.engines`: one a file, local and HTTP ones side by side."""
