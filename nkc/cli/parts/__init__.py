"""What commands share: options, reading of inputs, the console, and how things are drawn. Holds no command."""
