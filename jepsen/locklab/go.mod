module lockkeeper/jepsen/locklab

go 1.26.0

require lockkeeper v0.0.0

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/go-zookeeper/zk v1.0.4 // indirect
)

replace lockkeeper => ../..
