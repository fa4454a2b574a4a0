"""What a chain of transforms is at run time: worked out once from the specs between them."""
