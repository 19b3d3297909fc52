"""The training methods: each drives one TRL trainer and speaks through the journal."""
