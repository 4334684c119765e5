"""What `/docs` says of the API: operations, shapes, and the page that shows them."""
