"""ASGI middleware in front of the routes: origin checks, authentication, limits and request bodies."""
