"""What four kinds of new user do in their first hour, from their own data to an answer, one module a story."""
