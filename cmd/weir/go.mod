module github.com/weirflow/weir/cmd/weir

go 1.26.0

require (
	github.com/spf13/cobra v1.10.2
	github.com/weirflow/weir v0.0.0
	github.com/weirflow/weir/server v0.0.0
	github.com/weirflow/weir/weirrueidis v0.0.0
	golang.org/x/term v0.47.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-jose/go-jose/v4 v4.1.8 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/weirflow/weir/weirjwt v0.0.0-00010101000000-000000000000 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/weirflow/weir => ../../
	github.com/weirflow/weir/server => ../../server
	github.com/weirflow/weir/weirrueidis => ../../weirrueidis
)

replace github.com/weirflow/weir/weirjwt => ../../weirjwt
