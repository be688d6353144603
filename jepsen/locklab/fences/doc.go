// Package fences tests fence.Table with real databases: MariaDB and PostgreSQL as servers, SQLite
// in the process. Two transactions show tokens and write, in every order of their steps and at
// every isolation level; many do so at once; and names that collations take for one stay apart. It
// has tests only, and is here because the drivers must not become dependencies of the main module.
// Begin reading with TestTable.
package fences
