"""Reading runs: lists, views and reports, for pages, sockets and the API."""
