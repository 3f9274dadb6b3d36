"""Who calls: API keys, JSON Web Tokens, and what administrators did."""
