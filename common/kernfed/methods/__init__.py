"""One room a family of methods: its settings, messages, maths and section of the report."""
