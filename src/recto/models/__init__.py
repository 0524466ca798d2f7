"""What is known about models: their limits, their prices, their tokenizers."""
