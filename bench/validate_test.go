package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{Workload: "writ", Servers: []string{"a:1"}}, `there is no workload "writ"; there are write, read`},
		{Config{Workload: "write"}, "no server is named"},
		{Config{Workload: "write", Servers: []string{"a:1"}, Clients: -1}, "a number is negative"},
		{Config{Workload: "write", Servers: []string{"a:1"}, PIDs: []int{1, 2}}, "2 processes for 1 servers"},
		{Config{Workload: "herd", Servers: []string{"a:1"}, Rate: 5}, "a rate of 5: only write"},
		{Config{Workload: "read", Servers: []string{"a:1"}, Rate: -5}, "a rate of -5: only write"},
		{Config{Workload: "boot", Servers: []string{"a:1"}}, "needs the command line"},
	} {
		if _, err := Run(t.Context(), tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
	}
	_, err := Run(t.Context(), Config{Workload: "write", Servers: []string{"127.0.0.1:1"}})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("nobody listens: %v", err)
	}
}
