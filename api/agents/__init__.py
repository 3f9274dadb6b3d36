"""The Model Context Protocol (MCP): tools and resources for agents."""
