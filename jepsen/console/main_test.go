package console

import (
	"flag"
	"os"
	"testing"

	"lockkeeper/jepsen"
)

// tools are the programs that the tests start. The server has no race detector here: how soon the
// page shows a change is measured.
var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	status := jepsen.Main(m, &tools, false)
	closeChromium()
	os.Exit(status)
}
