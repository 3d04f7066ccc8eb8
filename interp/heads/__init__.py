"""What attention heads do: averages of their weights, and prompts on which roles show."""
