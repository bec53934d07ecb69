"""The judge that the settings name: of this process, or a pool of services."""
