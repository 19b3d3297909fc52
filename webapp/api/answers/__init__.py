"""The answers of the API, for its schema. Operations answer plain data that is not validated by these models again: a
row that is odd is shown as it is. Tests hold real answers to them, field by field."""
