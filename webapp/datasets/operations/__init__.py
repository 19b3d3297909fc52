"""Working with datasets: new versions made of others, where they come from, and files to download."""
