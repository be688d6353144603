// Package bench holds tests only: every workload of lockkeeper/bench against real members.
package bench
