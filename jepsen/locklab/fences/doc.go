// Package fences tests the fences of recipes/fence with real servers. fence.Table is tested with
// MariaDB, PostgreSQL and, in the process, SQLite: two transactions show tokens and write, in every
// order of their steps and at every isolation level; many do so at once; and names that collations
// take for one stay apart. fence.Redis and fence.Etcd are tested beside twins in whose requests a
// bug is planted. The package has tests only, and is here because the drivers must not become
// dependencies of the main module. Begin reading with TestTable and testKeys.
package fences
