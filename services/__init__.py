"""What stands behind the routes of the API: requests become events, and answers come from tables and log."""
