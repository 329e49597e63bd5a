// Command agent is margay: the node agent and its tools. cmd/margay is the same under the name that `go install` gives it.
package main

import "github.com/margay-project/margay/cmd/agent/cli"

func main() { cli.Main() }
