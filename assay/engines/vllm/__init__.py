"""vLLM servers as engine: started and watched from here, or running already."""
