"""The interface over gRPC (extra `grpc`); `anabranch.proto` describes it."""
