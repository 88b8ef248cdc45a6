"""What is learned, computed: the exact dynamics of a linear network (`population`) and the CNN they describe."""
