"""Accounts: service units of projects and users, charges and refunds, in any SQL database."""
