"""The answers of the API, for its schema. Operations answer plain data that is not validated by these models again: an
odd row is shown unchanged. Tests hold real answers to them, field by field."""
