"""Load tests of the HTTP server: correct answers, rejected requests, and speed."""
