"""The vLLM engine: servers that assay starts and watches, or that run already."""
