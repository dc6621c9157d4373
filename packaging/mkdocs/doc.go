// Command mkdocs writes what is installed beside the program: its manual pages,
// from the commands as nodelet docs tells them, and the manual page and the
// example of its configuration, from the comments of the fields of package
// config.
package main
