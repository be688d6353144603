module lockkeeper/jepsen/locklab

go 1.26.0

require lockkeeper v0.0.0

replace lockkeeper => ../..
