"""Between bytes and messages: payload layout, and the reflection codec over the generated protobuf classes."""
