"""Authentication by API key, JSON Web Token or local token; approvals; audit events."""
