module github.com/weirflow/weir/weirmemcached

go 1.26.0

replace github.com/weirflow/weir => ../

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
	github.com/weirflow/weir v0.0.0
)
