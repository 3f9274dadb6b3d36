"""The transactions of a stage on its tables. Start with `ledger`."""
