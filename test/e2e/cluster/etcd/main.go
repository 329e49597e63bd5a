// Command etcd is the datastore of the test cluster: etcd's own server, built from its module like the rest of the
// cluster, so that nothing has to be downloaded but Go modules.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
